package tidy

// decoderRegistry: decoder → the fuzz target of its package that feeds it; or "not: " and why nothing foreign reaches
// it.
var decoderRegistry = map[string]string{
	"fusefs/fsop.DecodeRequest": "FuzzDecodeRequest",
	"fusefs/fsop.DecodeReply":   "FuzzDecodeReply",
	"fusefs/fsop.DecodeEntry":   "FuzzDecodeEntry",
	"fusefs/fsop.DecodeMessage": "FuzzDecodeMessage",
	"fusefs/fsop.DecodeAnswer":  "FuzzDecodeAnswer",
	"fusefs/fsop.DecodeNotice":  "FuzzDecodeNotice",

	"fusefs/kernel.decodeRead":       "FuzzDecodeBody",
	"fusefs/kernel.decodeRename2":    "FuzzDecodeBody",
	"fusefs/kernel.decodeLseek":      "FuzzDecodeBody",
	"fusefs/kernel.decodeCopy":       "FuzzDecodeBody",
	"fusefs/kernel.decodeCreate":     "FuzzDecodeBody",
	"fusefs/kernel.decodeInit":       "FuzzDecodeInit",
	"fusefs/kernel.decodeMessage":    "FuzzDecodeMessage",
	"fusefs/kernel.parseFuseOptions": "FuzzFusermount",

	"fusefs/tree.decodeExtent":           "FuzzRecords",
	"fusefs/tree.decodeInode":            "FuzzRecords",
	"fusefs/tree.decodeDirent":           "FuzzRecords",
	"fusefs/tree.decodeGlobals":          "FuzzRecords",
	"fusefs/tree.decodeRecord":           "FuzzRecords",
	"fusefs/tree.decodeFence":            "FuzzRecords",
	"fusefs/tree.decodeLocks":            "FuzzRecords",
	"fusefs/tree.decodeProgress":         "FuzzRecords",
	"fusefs/tree.decodeOwner":            "FuzzRecords",
	"fusefs/tree.decodeSession":          "FuzzRecords",
	"fusefs/tree.session.decodePosition": "FuzzRecords",
	"fusefs/tree.region.decode":          "FuzzRecords",

	"csi/local.decodeRecord":                 "FuzzDecodeRecord",
	"csi/local/consumer.jsonCodec.Unmarshal": "FuzzMessages",
	"csi/mounts.Parse":                       "FuzzParse",
	"csi/mounts.parseLine":                   "FuzzParse",

	"raftlog.decodeIdentity":   "FuzzIdentity",
	"raftlog.decodeMark":       "FuzzMark",
	"raftlog.decodeMembership": "FuzzMembership",
	"raftlog.decodeContext":    "FuzzContext",
	"raftlog.decodeMessage":    "FuzzMessage",

	"raftlog/snapshot.decodeOffer": "FuzzReceive",
	"raftlog/snapshot.decodeParts": "FuzzParts",
	"raftlog/snapshot.decodeHave":  "FuzzAnswers",
	"raftlog/snapshot.decodeChunk": "FuzzReceive",
	"raftlog/snapshot.decodePair":  "FuzzReceive",

	"raftlog/transport.decodeHello":         "FuzzHello",
	"raftlog/transport.decodeAnswer":        "FuzzVerdict",
	"raftlog/transport/framed.ParseHeader":  "FuzzHeader",
	"raftlog/transport/framed.ParsePreface": "FuzzPreface",
	"raftlog/transport/framed.readGreeting": "FuzzGreeting",

	"raftlog/transport/pki.parseCerts":    "FuzzPEM",
	"raftlog/transport/pki.parseKey":      "FuzzPEM",
	"raftlog/transport/pki.parseIdentity": "FuzzIdentity",
	"raftlog/transport/pki.parseToken":    "FuzzToken",
	"raftlog/transport/pki.decodeToken":   "FuzzToken",

	"raftlog/wal.decodeMeta":          "FuzzHeaders",
	"raftlog/wal.decodeSegmentHeader": "FuzzHeaders",
	"raftlog/wal.decodeBatch":         "FuzzHeaders",
	"raftlog/wal.readHeader":          "FuzzJournal",

	"roles/dev.readLines":        "not: what an own child prints; lines are bounded and only compared",
	"roles/dev.parseRuntime":     "FuzzParseRuntime",
	"roles/dev.parseSettings":    "FuzzParseSettings",
	"roles/mountowner.parseSpec": "FuzzParseSpec",
	"roles/worker.ParseMember":   "FuzzParseMember",
	"roles/worker.decodeRoom":    "FuzzNote",
	"roles/worker.parseRecord":   "FuzzParseRecord",
	"roles/worker.parseStarts":   "FuzzParseRecord",
	"roles/worker.readReply":     "FuzzReadReport",
	"roles/worker.readReport":    "FuzzReadReport",
}
