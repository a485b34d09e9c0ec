//! Tickets: who wants a volume attached where, and who gets it.
