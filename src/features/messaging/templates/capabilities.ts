import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import type { MailLogo } from './logo.ts'
import type { MailRenderer } from './renderer.ts'

/** What this folder takes of the process where it reads. */
export type TemplateReads = Reads & Clock & CurrentSettings & MailLogo & MailRenderer
