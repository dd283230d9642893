// Package dev tests what an operator sees of `dev` and `ctl`: starting and
// ending, what is left behind, and the tools for when nothing runs. It has no
// code of its own.
package dev
