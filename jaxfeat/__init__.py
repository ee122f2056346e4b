"""Why did a language model learn a feature?

The rooms, lowest first: types, tree, linear, stats | io | nn | models, data | grads | train |
features | report | run. Each is imported by name (`from jaxfeat.grads import split`); importing
the package itself starts no backend and changes no JAX flag.
"""

__version__ = "0.1.0"
