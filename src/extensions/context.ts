import type { Logger } from 'pino'
import type { Static } from 'typebox'
import type { CurrentAccess } from '../access/store.ts'
import { Type } from '../adapters/typebox.ts'
import { withFreshCatalog } from '../catalog/store.ts'
import type { Configuration } from '../config/config.ts'
import type { Tx } from '../db/sql.ts'
import type { Action } from '../errors.ts'
import { type Actor, type Cause, systemActor } from '../events/types.ts'
import {
  type Accountability,
  actorOfHook,
  type HookDb,
  inTransaction,
  readingDb,
  requesterFor,
  scopeOfHook,
  writingDb,
} from '../features/data/items/items.ts'
import {
  type Attachment,
  checkAttachments,
  type MailContext,
  type MailRequest,
  type MailType,
  mailTypes,
  queueMail,
  readAttachments,
} from '../features/messaging/mail/mail.ts'
import { newNotificationOf, sendNotifications } from '../features/messaging/notifications/notifications.ts'
import { hasTemplate } from '../features/messaging/templates/templates.ts'
import { readAs } from '../http/reading.ts'
import { Id, Text } from '../http/shapes.ts'
import { type Grant, systemAccess } from '../query/access.ts'
import {
  type ExtensionWrites,
  type ItemsServiceClass,
  itemsServiceFor,
  type SocketService,
  type StorageService,
  socketServiceFor,
  storageServiceFor,
  type TasksService,
} from './services.ts'

/** The platform's context for an extension; see docs/extensions.md. */
export type ExtensionContext = {
  readonly db: ExtensionDb
  readonly ItemsService: ItemsServiceClass
  readonly permissionService: PermissionService
  readonly mailService: MailService
  readonly notificationService: NotificationService
  readonly socketService: SocketService
  readonly storageService: StorageService
  /** Only where tasks are run: in the handlers of tasks and schedules. */
  readonly tasksService?: TasksService
  /** Lines carry the extension's name. */
  readonly log: Logger
}

type ExtensionDb = HookDb & {
  /** SQL that may write, in one transaction; the log records what changes. In a before-hook it is that of the change. */
  transaction<Result>(work: (db: HookDb) => Promise<Result>): Promise<Result>
}

type PermissionService = {
  /** Whether the role has a permission for it; which rows and fields it covers is decided where they are read. */
  hasPermission(accountability: Accountability | null, collection: string, action: Action): boolean
  /** The permission, with its fields and conditions; undefined where there is none, and for callers who may do everything. */
  permissionOf(accountability: Accountability | null, collection: string, action: Action): Grant | undefined
  /** Follows changes of roles and permissions that were made by SQL. */
  reload(): Promise<void>
}

const Named = Type.Optional(Type.Object({ id: Id() }))
type About = Readonly<Record<string, unknown>> & {
  readonly user?: { readonly id: string }
  readonly tenant?: { readonly id: string }
}
const MailShape = Type.Object(
  {
    /** One plain address. */
    to: Text('ada@example.com', { refusal: 'Invalid email address' }),
    /** Liquid instead of the template's subject. */
    subject: Type.Optional(Text('Your export is ready')),
    /** The type of mail (features/messaging/mail/types.ts), or of a template; `templateName` is another word for it. */
    type: Type.Optional(Text('export-ready')),
    templateName: Type.Optional(Text('export-ready')),
    /** The data that the type needs, and the user that the mail concerns. */
    context: Type.Optional(Type.Unsafe<About>(Type.Object({ user: Named, tenant: Named }))),
    /** Stored files that go with it: their ids, or `{ file, filename }`. */
    attachments: Type.Optional(Type.Unsafe<readonly (string | Attachment)[]>({})),
  },
  { refusal: 'a mail must be an object' },
)
type MailOptions = Static<typeof MailShape>

type MailService = {
  /**
   * Queues a mail and gives the id of its svc_EmailLog row; the mail worker sends it. Part of the transaction in a
   * before-hook: a change that is refused sends nothing. Throws for an unknown type, 400 for a malformed address.
   */
  sendMail(mail: MailOptions): Promise<string>
}

type NotificationService = {
  /** `{type, title, message, data?, userIds, tenant_Id?}`; the ids of what was created, in the order of the users. */
  send(notification: object): Promise<readonly string[]>
}

type ContextOptions = {
  readonly tasksService?: TasksService | undefined
  /** Asked before every write. */
  readonly guard?: Actor['guard']
  /** The cause of all its changes. */
  readonly cause?: Cause | undefined
}

export function contextFor(
  deps: ExtensionWrites,
  extension: string,
  { tasksService, guard, cause }: ContextOptions = {},
): ExtensionContext {
  // Its changes without a user are a request of their own to the log; in a hook they share one with the hook's other
  // changes.
  const actor = (): Actor => {
    const own = { ...systemActor, userAgent: `daybook ${extension}`, guard }
    const hook = actorOfHook(deps)
    if (hook === undefined) return { ...own, logRequestId: deps.newId(), cause }
    return { ...own, requestId: hook.requestId, logRequestId: hook.logRequestId, agent: hook.agent, cause: hook.cause }
  }
  const requester = () => {
    const scope = scopeOfHook(deps)
    return { actor: scope === undefined ? actor() : (actorOfHook(deps) ?? scope.actor), access: systemAccess, scope }
  }
  const db = () => {
    const scope = scopeOfHook(deps)
    return scope === undefined ? readingDb(deps) : writingDb(scope)
  }
  return Object.freeze({
    db: {
      query: (text, values) => db().query(text, values),
      transaction: (work) => inTransaction(deps, requester(), ({ scope }) => work(writingDb(scope))),
    },
    ItemsService: itemsServiceFor(deps, actor),
    permissionService: permissionService(deps),
    mailService: {
      sendMail: (mail) =>
        inTransaction(deps, requester(), async ({ tx, scope }) => {
          const { emailLogId, event } = await queueMail(tx, await requestOf(deps, tx, mail))
          scope.events.push({ ...event, actor: actorOfHook(deps) ?? scope.actor })
          return emailLogId
        }),
    },
    notificationService: {
      send: async (notification) => {
        const sender = requester()
        const send = () => sendNotifications(deps, sender, newNotificationOf(notification))
        return sender.scope === undefined ? withFreshCatalog(deps.catalog, send) : send()
      },
    },
    socketService: socketServiceFor(deps, extension, () => scopeOfHook(deps)?.tx),
    storageService: storageServiceFor(deps, requester),
    ...(tasksService !== undefined && { tasksService }),
    log: deps.log.child({ extension }),
  } satisfies ExtensionContext)
}

function permissionService(deps: CurrentAccess): PermissionService {
  const accessOf = (accountability: Accountability | null) =>
    accountability === null ? systemAccess : requesterFor(accountability).access
  return {
    hasPermission: (accountability, collection, action) => {
      const access = accessOf(accountability)
      return access.admin || access.grant(collection, action) !== undefined
    },
    permissionOf: (accountability, collection, action) => accessOf(accountability).grant(collection, action),
    reload: () => deps.access.reload(),
  }
}

/** A mail of the platform, or by a template: of svc_Template, or built in. */
async function requestOf({ config }: Configuration, tx: Tx, options: MailOptions): Promise<MailRequest<MailType>> {
  const { to, subject, type, templateName, context = {} } = readAs(MailShape, options)
  const name = type ?? templateName ?? ''
  const { user, tenant, ...more } = context
  const own = Object.hasOwn(mailTypes, name) && name !== 'custom'
  if (!own && !(await hasTemplate(tx, name, tenant?.id ?? null)))
    throw new Error(
      `there is no active template ${JSON.stringify(name)}, nor is it one of: ${Object.keys(mailTypes).join(', ')}`,
    )
  const attachments = readAttachments(options.attachments)
  await checkAttachments(tx, config, attachments, tenant?.id)
  return {
    type: own ? (name as MailType) : 'custom',
    to,
    context: own ? (more as MailContext[MailType]) : { template: name, variables: more },
    ...(subject !== undefined && { subject }),
    ...(user !== undefined && { user: { id: user.id } }),
    ...(tenant !== undefined && { tenantId: tenant.id }),
    attachments,
  }
}
