"""Which rules a text sees and when: selection and visibility, the ``<search>`` token, and the hooks that attach it."""
