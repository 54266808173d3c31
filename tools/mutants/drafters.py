"""x"""
from mutants.fault import Fault
DRAFTERS: tuple[Fault, ...] = ()
