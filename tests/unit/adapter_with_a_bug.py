"""An adapter module that fails when imported."""

raise NameError("name 'undefined_thing' is not defined")
