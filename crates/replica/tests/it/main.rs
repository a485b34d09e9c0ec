//! The replica from outside: real directories, the golden one, a model, deaths at every step.

mod behaviour;
mod crash;
mod golden;
mod hostile;
mod model;
mod place;
