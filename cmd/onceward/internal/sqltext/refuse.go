package sqltext

import (
	"fmt"
	"strings"
)

// Cures for what is refused.
const (
	ownTransaction = "the transaction is begun and committed for the handler, together with the record that the message is done"
	intoSetup      = "put it into the setup file"
	byHand         = "run it by hand, while no consumer runs"
	outlives       = "it would outlive the transaction, and reach other messages on the same connection"
	commits        = "the database commits the transaction when it runs it; put it into the setup file"
)

// forbidden are first words of statements that a handler must not run, since neither the transaction
// nor the connection is its own.
var forbidden = [...]map[string]string{
	SQLite: words(map[string]string{
		intoSetup: "PRAGMA ATTACH DETACH",
		byHand:    "VACUUM",
	}),
	Postgres: words(map[string]string{
		outlives: "SET RESET DISCARD PREPARE EXECUTE DEALLOCATE LISTEN UNLISTEN LOAD",
		byHand:   "VACUUM CLUSTER",
	}),
	MySQL: words(map[string]string{
		outlives: "SET USE PREPARE EXECUTE DEALLOCATE HANDLER",
		commits: "CREATE ALTER DROP TRUNCATE RENAME LOCK UNLOCK GRANT REVOKE ANALYZE OPTIMIZE REPAIR CHECK CACHE FLUSH RESET " +
			"INSTALL UNINSTALL CHANGE",
		byHand: "KILL SHUTDOWN",
	}),
}

// words is forbidden by word, with those that are in every dialect.
func words(by map[string]string) map[string]string {
	all := map[string]string{}
	for w := range strings.FieldsSeq("BEGIN COMMIT END ROLLBACK SAVEPOINT RELEASE START ABORT XA") {
		all[w] = ownTransaction
	}
	for cure, list := range by {
		for w := range strings.FieldsSeq(list) {
			all[w] = cure
		}
	}
	return all
}

// refuse looks at the first words of a statement.
func refuse(d Dialect, first []string) error {
	cure, bad := forbidden[d][first[0]]
	if !bad || d == Postgres && first[0] == "SET" && len(first) > 1 && first[1] == "LOCAL" {
		return nil
	}
	return fmt.Errorf("%s is not for handlers: %s", first[0], cure)
}
