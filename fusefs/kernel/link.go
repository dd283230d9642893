package kernel

type Link struct{}

func (l *Link) put(m *Mount) error { return nil }
func (l *Link) drop(id string)     {}
