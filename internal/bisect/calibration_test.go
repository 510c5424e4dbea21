package bisect_test

import "os"

// envTrials is how many trials a simulation makes: few in every test run, many
// when KBISECT_CALIBRATION is set.
func envTrials(few, many int) int {
	if os.Getenv("KBISECT_CALIBRATION") != "" {
		return many
	}
	return few
}
