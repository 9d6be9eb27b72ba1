//! Averages, probabilities and schedules of the AQMs against values computed by hand or by the
//! formulas of their papers, shown beside each.

mod bed;
mod codel;
mod controllers;
mod marks;
mod red;
mod schedules;
