"""x"""
from mutants.fault import Fault
CORE: tuple[Fault, ...] = ()
