package fsop

// Own makes a session the owner of a volume that one node at a time may use.
// The ownership ends with the session and only with it: a session that exists
// still owns. Owner names the node. Another owner's session refuses it with
// EBUSY and that owner's name in Data. A session of the same owner is ended:
// the node has lost it, and its number comes back in Session.
//
// It is an entry of the log, and a message of the client to the coordinator.
type Own struct {
	Session uint64
	Owner   []byte
}

// Kind implements Op.
func (*Own) Kind() Kind { return KindOwn }

func (o *Own) code(c *coder) {
	c.u64(&o.Session)
	c.bytes(&o.Owner, NameMax)
}
