package mountowner

import (
	"go.uber.org/zap"

	"tak-os.org/tak-replicated/fusefs/client"
)

// watchOver waits for the end of a session that can't begin anew. A mount that
// never served ends with it. One that did stays, and answers errors until it is
// unstaged: its users must not meet a bare folder, or another one's files.
func (m *mount) watchOver(s *client.Session) {
	select {
	case <-s.OverSoon():
	case <-m.ended:
		return
	}
	select {
	case <-m.up:
	default:
		if !m.kernel.Load().Resumed() {
			m.refused.Store(true)
			m.cancel()
			return
		}
	}
	m.log.Error("the volume is lost to this mount; every use of it fails until it is unmounted", zap.Error(s.Over()))
}

// why is the reason for which a mount that never served has ended.
func (m *mount) why() error {
	if s := m.session.Load(); m.refused.Load() && s != nil {
		return s.Over()
	}
	return m.err
}
