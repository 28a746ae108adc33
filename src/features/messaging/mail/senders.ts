import { isDeepStrictEqual } from 'node:util'
import { type MailDelivery, mailboxOf, type SmtpSender } from '../../../adapters/mailer.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import { type CurrentSettings, type SettingsRow, smtpPassword } from '../../settings/settings.ts'

/**
 * The sender of a mail of the tenant, or of the installation: SMTP of the tenant's settings, else of the installation's,
 * where it is switched on and complete, else MAIL_DEFAULT_SENDER. Outside production the inbox
 * keeps mails that cannot be sent; in production it is undefined, and the mail waits. `from`: the address of the sender that the
 * mail itself names, which comes first where it is still configured. A sender whose password no key opens is still the sender.
 */
export function senderOf(
  deps: Configuration & CurrentSettings,
  tenantId: string | undefined,
  from?: string,
): SmtpSender | undefined {
  const named = from === undefined ? undefined : senderNamed(deps, tenantId, from)
  if (named !== undefined) return named
  const own = tenantId === undefined ? undefined : settingsSender(deps.config, deps.settings.own(tenantId))
  return own ?? settingsSender(deps.config, deps.settings.own(null)) ?? configuredSender(deps) ?? inboxOf(deps)
}

/** The address of a sender that mails of the tenant may name as `from`; undefined where there is none with it. */
export function senderAddress(
  deps: Configuration & CurrentSettings,
  tenantId: string | undefined,
  from: string,
): string | undefined {
  const sender = senderNamed(deps, tenantId, from)
  return sender && mailboxOf(sender).address
}

/** Of the tenant's settings, the installation's, and the environment. */
function senderNamed(
  { config, settings }: Configuration & CurrentSettings,
  tenantId: string | undefined,
  from: string,
) {
  const rows = [tenantId === undefined ? undefined : settings.own(tenantId), settings.own(null)]
  const senders = [...rows.map((row) => settingsSender(config, row)), ...Object.values(config.mail.senders)]
  return senders.find((sender) => sender !== undefined && (sender.from === from || mailboxOf(sender).address === from))
}

/** Stands for the development inbox: the name of what it "sends", and the address that comes from. */
export const inbox: SmtpSender = {
  name: 'development inbox',
  from: 'daybook@localhost',
  host: '',
  port: 0,
  secure: false,
  user: '',
  pass: '',
}

/** Whether there are inboxes for mails at all: never in production. */
export function hasInbox({ config }: Configuration): boolean {
  return config.server.environment !== 'production'
}

function inboxOf(deps: Configuration): SmtpSender | undefined {
  return hasInbox(deps) ? inbox : undefined
}

function configuredSender({ config }: Configuration): SmtpSender | undefined {
  const { senders, defaultSender: name } = config.mail
  return name === undefined ? undefined : senders[name]
}

/**
 * The sender of one row alone, undefined where it is not switched on or not complete: a tenant that names its own server
 * must not get the installation's password sent there.
 */
export function settingsSender(config: Config, row: SettingsRow | undefined): SmtpSender | undefined {
  if (row?.smtp_enabled !== true) return undefined
  const [host, user, from, sealed] = [row.smtp_host, row.smtp_user, row.smtp_from_address, row.smtp_pass].map(textOf)
  if (!(host && user && from && sealed)) return undefined
  const pass = smtpPassword(config, row)
  if (pass === '') return undefined
  const port = typeof row.smtp_port === 'number' ? row.smtp_port : submissionPort
  const secure = typeof row.smtp_secure === 'boolean' ? row.smtp_secure || port === tlsPort : port === tlsPort
  const name = row.tenant_Id === null ? 'settings' : `settings of tenant ${row.tenant_Id}`
  const sender = { name, host, port, secure, user, from, publicOnly: !config.files.allowPrivateUrlFetch }
  // Its mails wait for the password: by another sender they would come from another address.
  return pass === undefined ? { ...sender, pass: '', isPasswordLost: true } : { ...sender, pass }
}

const submissionPort = 587
const tlsPort = 465

const textOf = (value: unknown) => (typeof value === 'string' && value !== '' ? value : undefined)

/**
 * A mail worker's state of one sender: its SMTP server's answers decide how many mails it gets at the same time. Times
 * are milliseconds of one clock.
 */
export type SenderLane = {
  /** When each attempt that is still under way began. */
  readonly running: readonly number[]
  /** When the server answered last, whatever it said. */
  readonly answeredAt: number | undefined
  /** Attempts since then that the server has not answered. */
  readonly failures: number
  /** Until then nothing is sent: the server has failed again and again. */
  readonly closedUntil: number
  /** How the last of these attempts failed. */
  readonly failure: FailedDelivery | undefined
}

type FailedDelivery = Extract<MailDelivery, { reason: string }>

export const newLane: SenderLane = {
  running: [],
  answeredAt: undefined,
  failures: 0,
  closedUntil: 0,
  failure: undefined,
}

/** Mails of one sender at the same time, when its server answers; the mailer has fewer connections, and keeps them busy. */
const provenSlots = 20
/** The same while nothing is known of the server, or while it is silent. */
const unprovenSlots = 5
/** Mails of all such senders together. */
const unprovenTogether = 40
/**
 * Mails of all senders. Senders whose servers do not answer can never take all places, so some remain for the others.
 */
export const mailSlots = 60

/** A server that has said nothing for so long, with mails under way, may never say anything again. */
const silentMs = 5000
/** One failure may be chance. */
const failuresToClose = 2
const firstClosedMs = 5000
const longestClosedMs = 300_000

/** `closed`: nothing is sent now. `trial`: one mail finds out whether the server is back. */
type LaneHealth = 'proven' | 'unproven' | 'trial' | 'closed'

export function healthOf({ running, answeredAt, failures, closedUntil }: SenderLane, now: number): LaneHealth {
  if (failures >= failuresToClose) return now < closedUntil ? 'closed' : 'trial'
  if (answeredAt === undefined) return 'unproven'
  const since = Math.max(answeredAt, running[0] ?? now)
  return now - since > silentMs ? 'unproven' : 'proven'
}

/** How many mails more the lane may be given, of itself. A closed one takes them all: none is sent. */
export function roomOf(lane: SenderLane, now: number): number {
  const health = healthOf(lane, now)
  if (health === 'closed') return mailSlots
  const slots = { proven: provenSlots, unproven: unprovenSlots, trial: 1 }[health]
  return Math.max(0, slots - lane.running.length)
}

export function begun(lane: SenderLane, now: number): SenderLane {
  return { ...lane, running: [...lane.running, now] }
}

/** After the attempt that began at `startedAt`; `delivery` is undefined where nothing was learnt about the server. */
export function ended(
  lane: SenderLane,
  startedAt: number,
  delivery: MailDelivery | undefined,
  now: number,
): SenderLane {
  const at = lane.running.indexOf(startedAt)
  const rest = { ...lane, running: lane.running.toSpliced(at, at < 0 ? 0 : 1) }
  const verdict = delivery === undefined ? undefined : verdictOn(delivery)
  if (verdict === undefined) return rest
  if (verdict === 'answered') return { ...rest, answeredAt: now, failures: 0, failure: undefined }
  const failures = lane.failures + 1
  const longer = Math.max(0, failures - failuresToClose)
  const closedMs = Math.min(firstClosedMs * 2 ** Math.min(longer, 10), longestClosedMs)
  const failure = delivery as FailedDelivery
  // Attempts that began together fail together: they are one reason to wait, not several.
  if (now < lane.closedUntil && lane.failures >= failuresToClose) return { ...rest, failure }
  return { ...rest, failures, closedUntil: now + closedMs, failure }
}

/** A server that refuses a message works; one that refuses us, or says nothing, does not. */
function verdictOn(delivery: MailDelivery): 'answered' | 'failed' | undefined {
  if (delivery.outcome === 'accepted' || delivery.problem === 'refused message') return 'answered'
  const isOurs = delivery.problem === 'no sender' || delivery.problem === 'not composed'
  return isOurs ? undefined : 'failed'
}

/** How a mail worker shares its slots among senders. Jobs are grouped by tenant; the sender of a group may change. */
export type Lanes = {
  /** Groups of which no job can start now. */
  full(): readonly string[]
  /** At most so many jobs can start now, of any one group. */
  room(): number
  /** Takes a slot for a job, until `leave`; false where there is none. */
  enter(jobId: string, group: string): boolean
  /** Gives the slot back. `delivery`: what became of the attempt; undefined where none was made. */
  leave(jobId: string, delivery: MailDelivery | undefined): void
  /** How a mail of the group fails without being tried, while its server fails; undefined when it is to be tried. */
  closed(group: string): FailedDelivery | undefined
  /** To be called when the settings have changed: senders are asked for again. */
  forgetSenders(): void
}

/** `senderOf` gives the sender of a group's mails, undefined where there is none. */
export function openLanes(
  senderOf: (group: string) => SmtpSender | undefined,
  clock: () => number = () => performance.now(),
): Lanes {
  const state: SendersState = { senderOf, bySender: new Map(), senderOfGroup: new Map() }
  const { bySender, senderOfGroup } = state
  const jobs = new Map<string, { readonly name: string; readonly startedAt: number }>()
  return {
    full() {
      const roomIn = roomNow(state, clock())
      if (![...bySender.values()].some(({ lane }) => roomIn(lane) <= 0)) return []
      return [...senderOfGroup.keys()].filter((group) => roomIn(laneOf(state, group)) <= 0)
    },
    room() {
      const roomIn = roomNow(state, clock())
      const busy = [...bySender.values()].filter(({ lane }) => lane.running.length > 0)
      const rooms = busy.map(({ lane }) => roomIn(lane))
      return Math.min(mailSlots, ...rooms.filter((room) => room > 0))
    },
    enter(jobId, group) {
      const lane = laneOf(state, group)
      const startedAt = clock()
      if (roomNow(state, startedAt)(lane) <= 0) return false
      const name = nameOf(state, group)
      change(state, name, begun(lane, startedAt))
      jobs.set(jobId, { name, startedAt })
      return true
    },
    leave(jobId, delivery) {
      const job = jobs.get(jobId)
      if (job === undefined) return
      jobs.delete(jobId)
      const known = bySender.get(job.name)
      if (known !== undefined) change(state, job.name, ended(known.lane, job.startedAt, delivery, clock()))
    },
    closed(group) {
      const lane = laneOf(state, group)
      return healthOf(lane, clock()) === 'closed' ? lane.failure : undefined
    },
    forgetSenders() {
      senderOfGroup.clear()
      if (bySender.size < keptAtMost) return
      for (const [name, { lane }] of bySender) if (lane.running.length === 0) bySender.delete(name)
    },
  }
}

type SendersState = {
  readonly senderOf: (group: string) => SmtpSender | undefined
  /** By the sender's name, empty for none. */
  readonly bySender: Map<string, { readonly sender: SmtpSender | undefined; readonly lane: SenderLane }>
  readonly senderOfGroup: Map<string, string>
}

const keptAtMost = 10_000

function laneOf(state: SendersState, group: string): SenderLane {
  return state.bySender.get(nameOf(state, group))!.lane
}

/** The name of the sender of a group, which has a lane after that. */
function nameOf({ senderOf, bySender, senderOfGroup }: SendersState, group: string): string {
  const known = senderOfGroup.get(group)
  if (known !== undefined) return known
  const sender = senderOf(group)
  const name = sender?.name ?? ''
  const before = bySender.get(name)
  // With another server, password or address it may work.
  if (before === undefined || !isDeepStrictEqual(before.sender, sender))
    bySender.set(name, { sender, lane: { ...newLane, running: before?.lane.running ?? [] } })
  if (senderOfGroup.size >= keptAtMost) senderOfGroup.delete(senderOfGroup.keys().next().value!)
  senderOfGroup.set(group, name)
  return name
}

function change({ bySender }: SendersState, name: string, lane: SenderLane): void {
  bySender.set(name, { ...bySender.get(name)!, lane })
}

/** How many mails more each lane may be given now: those of silent servers share what is for all of them. */
function roomNow({ bySender }: SendersState, now: number): (lane: SenderLane) => number {
  const isBound = (lane: SenderLane) => !['proven', 'closed'].includes(healthOf(lane, now))
  let taken = 0
  for (const { lane } of bySender.values()) if (isBound(lane)) taken += lane.running.length
  return (lane) => Math.min(roomOf(lane, now), isBound(lane) ? unprovenTogether - taken : mailSlots)
}
