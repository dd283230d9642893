package tidy

var decoderRegistry = map[string]string{
	"fusefs/fsop.DecodeRequest": "fusefs/fsop.FuzzDecodeRequest",
	"fusefs/fsop.DecodeReply":   "fusefs/fsop.FuzzDecodeReply",
	"fusefs/fsop.DecodeEntry":   "fusefs/fsop.FuzzDecodeEntry",
	"fusefs/fsop.DecodeMessage": "fusefs/fsop.FuzzDecodeMessage",
	"fusefs/fsop.DecodeAnswer":  "fusefs/fsop.FuzzDecodeAnswer",
	"fusefs/fsop.DecodeNotice":  "fusefs/fsop.FuzzDecodeNotice",
}
