"""`plait demo`: a run that is watched while it is made, killed, resumed, questioned and checked."""
