"""`schedctl`, the admin's tool: a thin layer over `schedd.client`, and for `run` over `schedd.runtime`.

    app.py       the entry point, the table of verbs, the options before the verb
    errors.py    exit codes, and what is said when something goes wrong
    session.py   the options of the whole command line, and the way to the daemon
    render.py    aligned columns, ages, colours, JSON
    specs.py     spec files as the verbs that take one need them
    quick.py     Typer without the imports that its parameters cost
    submit.py change.py status.py listing.py wait.py logs.py validate.py run.py: the verbs
    foreground.py progress.py: the engine behind `run`, and what is shown while it runs

`schedctl` is started by scripts in loops, so its start is kept short: a verb's module is imported when the verb is
used, and nothing but `foreground` imports the server's libraries at module level.
Tests: tests/unit/cli, tests/acceptance/test_schedctl_*.py.
"""
