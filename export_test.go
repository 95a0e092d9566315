package onceward

// Isolate gives a consumer a lock of its own against handlers that must run alone, as it would have
// in a process of its own.
func Isolate(c *Consumer) { c.isolation = newExclusion() }

// LaneOf is the lane, of n, of messages with this key.
func LaneOf(key string, n int) int {
	s := &session{lanes: make([]*lane, n)}
	for i := range s.lanes {
		s.lanes[i] = &lane{size: i}
	}
	return s.lane(&item{Incoming: Incoming{Message: Message{Key: key}}}).size
}
