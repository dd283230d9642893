// Package damage holds the table of what can happen to the files of a replica,
// and what has to come of it: trimmed, repaired from the others, or state lost
// with the reason; never wrong bytes, an empty or forgetful rejoin, or a vote
// that breaks an earlier one.
//
// Two of three replicas go on all the time. The third one is put back as it was
// when the volume was stopped, damaged, and started, once for each row.
package damage
