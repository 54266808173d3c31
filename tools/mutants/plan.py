"""x"""
from mutants.fault import Fault
PLAN: tuple[Fault, ...] = ()
