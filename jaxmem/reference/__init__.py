"""Numpy twins of the fast kernels: float64, plain loops, nothing imported from jaxmem."""
