"""What `digenctl plan` computes: how to place and cut a job, from the times of its work. Pure, as all of `broker`."""
