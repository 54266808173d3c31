"""x"""
from mutants.fault import Fault
TRAIN: tuple[Fault, ...] = ()
