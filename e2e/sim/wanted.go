package sim

// Wanted is what a batch of worlds has to hit: every fault, and the windows in
// which faults are dangerous.
func Wanted() []string {
	wanted := []string{
		"answered ahead of the log",
		"answered from memory",
		"contents read from a replica that follows",
		"digest compared",
		"fsync",
		"operation ahead of the log is lost with its session",
		"recall",
		"slow sync",
		"operation without an answer",
		"looked at what another one has just done",
		"fault: sync failed, of the journal",
		"window: an operation gives way to others",
		"window: a replica stays away",
		"window: answer lost",
		"window: bits flipped in a checkpoint",
		"window: bits flipped in contents",
		"window: page of contents spoiled",
		"window: bits flipped in the journal",
		"window: damaged contents are mended",
		"window: checkpoint of another replica installed",
		"window: contents of a replica that follows are not good enough",
		"window: coordinator down with unanswered operations",
		"window: coordinator down with work ahead of the log",
		"window: damaged replica is reported lost",
		"window: election with unanswered operations",
		"window: growth refused for want of space",
		"window: installed contents newer than their checkpoint",
		"window: lock refused",
		"window: member removed",
		"window: membership changed",
		"window: operation sent again",
		"window: operation sent again after it was applied",
		"window: power cut at a call on a checkpoint",
		"window: power cut at a call on a checkpoint being received",
		"window: power cut at a call on the journal",
		"window: power cut during the install of a checkpoint",
		"window: power cut while starting",
		"window: power cut while the store opens",
		"window: several replicas may have lost what they confirmed",
		"window: end of the journal may have been confirmed",
		"window: recall of a client that works ahead of the log",
		"window: recall behind answers that the client has not seen",
		"window: recall crossing a grant",
		"window: replay up to the fence",
		"window: replica stopped after a failed sync",
		"window: replica stopped for want of space",
		"window: server replaced with operations in flight",
		"window: server replaced with work ahead of the log",
		"window: session lost",
		"window: voters lose power after an election",
		"window: unlinked file used by whoever has it open",
	}
	for _, kind := range kinds() {
		wanted = append(wanted, "fault: "+string(kind))
	}
	return wanted
}

// kinds are all kinds of faults that plans have.
func kinds() []Kind {
	seen := map[Kind]bool{}
	var all []Kind
	for _, theme := range append(themes, anyKind) {
		for _, kind := range theme {
			if !seen[kind] {
				seen[kind] = true
				all = append(all, kind)
			}
		}
	}
	return all
}
