package sim

import "flag"

func init() {
	flag.IntVar(&aheadFlag, "ahead", aheadFlag, "how many operations each session may answer ahead of the log; -1: as the seed says")
}
