import { createTransport, type NodemailerError } from 'nodemailer'
import type { MailSender } from '../config/families.ts'

/** A finished mail to one recipient. */
export type OutgoingMail = {
  /** Display name, used when the sender's address brings none. */
  readonly fromName: string
  readonly to: string
  readonly subject: string
  readonly html: string
  readonly text: string
  /** With angle brackets. The same for every attempt to send this mail. */
  readonly messageId: string
}

/**
 * What became of an attempt. `accepted`: the server has it. `refused`: the server will never take this message.
 * `delayed`: it surely was not taken, another attempt may succeed. `uncertain`: the line broke before the answer.
 */
export type Delivery =
  | { readonly outcome: 'accepted'; readonly response: string }
  | { readonly outcome: 'refused' | 'delayed' | 'uncertain'; readonly reason: string }

export type Mailer = {
  /** Sends over a pooled connection. Does not throw; aborting makes it `uncertain`. */
  send(sender: MailSender, mail: OutgoingMail, signal: AbortSignal): Promise<Delivery>
  close(): void
}

/** Milliseconds. Without an answer for `silence` a connection is given up. */
export type MailerTimeouts = { readonly connect: number; readonly greeting: number; readonly silence: number }

const defaultTimeouts: MailerTimeouts = { connect: 30_000, greeting: 30_000, silence: 120_000 }
const connectionsPerSender = 5

/** Opens connections when they are needed and keeps them for a minute. */
export function openMailer(timeouts: MailerTimeouts = defaultTimeouts): Mailer {
  const transports = new Map<MailSender, ReturnType<typeof openTransport>>()
  const transportOf = (sender: MailSender) => {
    const known = transports.get(sender) ?? openTransport(sender, timeouts)
    transports.set(sender, known)
    return known
  }
  return {
    async send(sender, mail, signal) {
      try {
        const { response } = await transportOf(sender).sendMail({ ...envelopeAndContent(sender, mail), signal })
        return { outcome: 'accepted', response }
      } catch (error) {
        return failedDelivery(error as NodemailerError)
      }
    },
    close() {
      for (const transport of transports.values()) transport.close()
    },
  }
}

/**
 * What an SMTP error means for the message. Only an answer of the server about this message or its recipient ends it;
 * refused credentials, senders, TLS and the like are faults of the configuration, which somebody can mend meanwhile.
 */
export function failedDelivery(error: NodemailerError): Exclude<Delivery, { outcome: 'accepted' }> {
  return { outcome: outcomeOf(error), reason: reasonOf(error) }
}

function outcomeOf(error: NodemailerError): 'refused' | 'delayed' | 'uncertain' {
  if (error.responseCode !== undefined) return error.permanent && isAboutMessage(error) ? 'refused' : 'delayed'
  if (error.code === 'EENVELOPE' || error.code === 'EMESSAGE') return 'refused'
  return isBeforeMessage(error) ? 'delayed' : 'uncertain'
}

/** Replies to any command that ask for (another) authentication: 530, 534, 535, 538. */
const authenticationReplies: ReadonlySet<number | undefined> = new Set([530, 534, 535, 538])
const messageTooLarge = 552

function isAboutMessage({ command, responseCode }: NodemailerError): boolean {
  if (authenticationReplies.has(responseCode)) return false
  return command === 'RCPT TO' || command === 'DATA' || (command === 'MAIL FROM' && responseCode === messageTooLarge)
}

const codesBeforeMessage: ReadonlySet<string | undefined> = new Set(['EDNS', 'ETLS', 'EAUTH', 'ENOAUTH', 'ECONFIG'])
const waitsBeforeMessage: ReadonlySet<string | undefined> = new Set([
  'CONNECT_TIMEOUT',
  'GREETING_TIMEOUT',
  'UPGRADE_TIMEOUT',
])
const unreachable: ReadonlySet<string | undefined> = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EADDRNOTAVAIL',
  'ENOTFOUND',
  'EAI_AGAIN',
])

function isBeforeMessage({ code, timeoutType, originalCode }: NodemailerError): boolean {
  return codesBeforeMessage.has(code) || waitsBeforeMessage.has(timeoutType) || unreachable.has(originalCode)
}

/** One line for people: the server's words if it said any. */
function reasonOf({ message, cause, code }: NodemailerError): string {
  const why = cause instanceof Error ? ` (${cause.message})` : ''
  const text = `${code === undefined ? '' : `${code}: `}${message}${why}`
  return text.replace(/[\p{C}\s]+/gu, ' ')
}

function openTransport(sender: MailSender, timeouts: MailerTimeouts) {
  return createTransport({
    pool: true,
    host: sender.host,
    port: sender.port,
    secure: sender.secure,
    auth: { user: sender.user, pass: sender.pass },
    // Used for STARTTLS as well, which is taken whenever the server offers it.
    tls: { minVersion: 'TLSv1.2' },
    maxConnections: connectionsPerSender,
    // Only for a pooled connection that turns out to be closed before a byte of the message was sent.
    maxRequeues: 1,
    idleTimeout: 60_000,
    connectionTimeout: timeouts.connect,
    dnsTimeout: timeouts.connect,
    greetingTimeout: timeouts.greeting,
    socketTimeout: timeouts.silence,
    // A template must not be able to attach files of this machine or what another one serves.
    disableFileAccess: true,
    disableUrlAccess: true,
    maxRecipients: 1,
  })
}

function envelopeAndContent(sender: MailSender, { fromName, to, subject, html, text, messageId }: OutgoingMail) {
  const { name, address } = mailboxOf(sender)
  const headers = { 'Auto-Submitted': 'auto-generated' }
  const from = { name: name || fromName, address }
  return {
    from,
    to: { name: '', address: to },
    envelope: { from: address, to },
    subject,
    html,
    text,
    messageId,
    headers,
  }
}

/** `<SENDER>_FROM_ADDRESS` may be an address or `Name <address>`. */
export function mailboxOf({ from }: MailSender): { readonly name: string; readonly address: string } {
  const [, name = '', address = from] = /^([^<]*)<([^<>]*)>\s*$/.exec(from) ?? []
  return { name: name.trim().replace(/^"(.*)"$/, '$1'), address: address.trim() }
}
