// Package transport moves messages and checkpoint streams between the replicas
// of one volume, and shares a replica's one port among all who dial it.
//
// # What it owns
//
// [Server] is the port: it accepts, performs the TLS handshake, reads what the
// connection is for, checks that the certificate's role may do that, and hands
// the connection to the handler of its kind. [Transport] is the replica's end
// of the connections to other replicas. [MemNetwork] is the same in memory, for
// tests: a seed decides what is lost, late, doubled and out of order.
//
// Below it, package framed has the bytes of preface and frames; package pki has
// the certificates. It does not own what is in a message, who is a member, or
// what a stream says.
//
// # Bytes
//
// A connection of kind peer-message or peer-stream starts with a hello from
// the dialler and a verdict from the listener, frames of type 1 and 2. All
// numbers are little endian.
//
//	hello    version u16 (1), from member u64, from incarnation u64,
//	         to member u64, to incarnation u64 (0 unknown), instance u64,
//	         length of volume u8, volume
//	verdict  version u16 (1), code u8, instance u64, length u16, text
//
// Instance is drawn by each process at start: a new one means that the other
// side has been restarted. Codes are those of Verdict. After an accepting
// verdict a peer-message connection carries frames of type 3, one message
// each, both ways; a peer-stream connection carries bytes.
//
// # Invariants
//
// Messages may be lost, and after a reconnect arrive out of order; they are
// never altered, never from a member that is barred or of another incarnation
// than SetMembers told, and never from another volume. Two replicas share one
// message connection, whoever dialled it: when both dial at once, the one
// dialled by the lower member id stays. Send never blocks: what finds the
// queue full is dropped, and Unreachable is called.
//
// An idle port costs one goroutine, an idle connection one more; nothing here
// ticks.
//
// # After a crash
//
// Nothing is kept on disk. The other side sees the connection end, or within
// three seconds that its data is not acknowledged, and dials anew.
package transport
