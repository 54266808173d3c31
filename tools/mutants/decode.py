"""x"""
from mutants.fault import Fault
DECODE: tuple[Fault, ...] = ()
