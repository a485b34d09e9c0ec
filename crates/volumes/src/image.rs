//! The engine image: which engine this build brings.
