// Package bundle writes what somebody who helps from afar needs to see into one
// archive: state, logs, metrics, Events. It never reads a Secret or a file of a
// volume, and takes out of logs what looks like a key or a token, should one ever
// have got there.
//
// It keeps nothing. What can't be had is noted in the archive's errors.txt.
package bundle
