package boot

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

// Logger returns the logger that the configuration asks for, writing to f.
func (c *Config) Logger(f *os.File) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(c.LogLevel)
	if err != nil || level > zapcore.ErrorLevel {
		return nil, Usagef("--log-level: %q is not debug, info, warn or error", c.LogLevel)
	}
	enc := zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", NameKey: "logger", MessageKey: "msg",
		EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeLevel: zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}
	format := c.LogFormat
	if format == "auto" {
		format = "json"
		if Terminal(f) {
			format = "console"
		}
	}
	var encoder zapcore.Encoder
	switch format {
	case "json":
		encoder = zapcore.NewJSONEncoder(enc)
	case "console":
		enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoder = zapcore.NewConsoleEncoder(enc)
	default:
		return nil, Usagef("--log-format: %q is not json, console or auto", c.LogFormat)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(f), level)), nil
}

// Terminal reports whether f is a terminal.
func Terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
