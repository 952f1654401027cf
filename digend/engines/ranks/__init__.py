"""A trainer of several processes on torch.distributed: who they are, what they tell each other, where weights lie.

`membership` is what a process is one of; `peers` what the ranks say to each other; `layout` where the weights lie and
how gradients come together; `dealing` who trains which pairs. One rank alone needs none of it and pays for none of it.
"""
