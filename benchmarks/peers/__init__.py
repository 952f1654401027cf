"""The other side of side-by-side benchmarks: scripts for an interpreter of their own that import no digend."""
