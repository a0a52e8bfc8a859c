"""`delayq run`: the processes of queues, as subprocesses of one supervisor, with an embedded or an external Redis."""
