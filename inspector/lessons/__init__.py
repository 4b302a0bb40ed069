"""The lessons of the Learn tab and the checks of their answers."""
