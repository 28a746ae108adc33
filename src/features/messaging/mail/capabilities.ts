import type { IdSource } from '../../../adapters/ids.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { Traces } from '../../../adapters/tracing.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { UnloggedWrites } from '../../../db/sql.ts'
import type { Writes } from '../../../events/commit.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import type { LogoReads, MailRenderer } from '../templates/templates.ts'

/** The capabilities that reads of this folder need. */
export type MailReads = Reads & Clock & CurrentSettings & Logs & LogoReads & MailRenderer

/** The capabilities that changes of this folder need. */
export type MailWrites = Reads &
  Writes &
  UnloggedWrites &
  Clock &
  CurrentSettings &
  IdSource &
  Logs &
  LogoReads &
  MailRenderer &
  Traces
