"""The life of a process: files and environment enter, settings leave; owns logging, its signals, its end and its leadership."""
