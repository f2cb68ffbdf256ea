"""The page: what a person on call sees of a pipeline, in a browser. Server-rendered, without a build step, without foreign hosts.

    page_facts.py     looks at Kafka, source and sinks every few seconds, on a thread; a value leaves (`Facts`)
    lag_history.py    the lag and the rates of the last hour, from the looks
    view_documents.py, kept_schemas.py
                      facts → the document of each view, which JSON and HTML show alike (pure)
    plots.py, pictures.py  numbers → SVG (pure)
    live_changes.py   the newest changes, decoded, while somebody looks
    sign_in.py        who may read and act: own names, sign-in, same origin
    page_signals.py   signals of a form, and the producer's answers
    page_views.py     requests → answers
    server.py         the HTTP server, with limits on time and number
    templates/, static/   HTML (Jinja), style, htmx (0BSD), and the script that says when the page is out of date

It reads what `tidemark status` reads, so producer and merge job need not run, nor listen.
"""
