// Package metric defines metrics before they are made: each role has one table
// of what it shows, and makes its collectors of the table's rows. docs/metrics.md
// is written from the tables, and queries are checked against them.
//
// It owns no values and no registry. A table is read-only once its package is
// initialised; a row that is asked for and not there is a programmer's error.
package metric
