"""The configuration of other tools enters, settings of ours and what has no equivalent leave; one package per tool."""
