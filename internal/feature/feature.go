package feature

type Need struct {
	Fragment, Text, Command, Why string
	Line                         int
}

func Missing([]byte) []Need    { return nil }
func InScript(string) []string { return nil }
