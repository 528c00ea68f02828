"""The runner of resqued for Python: python3 -m resqued_runner MODULE…"""

__version__ = "0.1.0"
PROTOCOL = 1
