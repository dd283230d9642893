package sim

import "flag"

func init() {
	flag.IntVar(&queueOps, "ahead", 0, "how many operations each session may answer ahead of the log")
}
