import { Type } from '../../../adapters/typebox.ts'
import { errors } from '../../../errors.ts'
import { readAs } from '../../../http/reading.ts'
import { Anything, Filled, Id } from '../../../http/shapes.ts'
import { collectParameters, readStrings } from '../../../query/parse.ts'

/** One notification for many users. */
export type NewNotification = {
  readonly type: string
  readonly title: string
  readonly message: string
  /** JSON for the client of the user. */
  readonly data: unknown
  /** Canonical and without repeats. */
  readonly userIds: readonly string[]
  /** Undefined: the sender's. */
  readonly tenantId: string | null | undefined
}

const usersAtMost = 1000
const idsAtMost = 1000
const longestMessage = 10_000
const largestData = 16_384
const longestDays = 36_500

const requiredText = (name: string, maxLength: number, example: string) =>
  Filled(example, {
    maxLength,
    format: 'unicode',
    refusal: {
      maxLength: `${name} must be at most ${maxLength} characters long`,
      pattern: `${name} is required`,
      format: `${name} must be valid Unicode text`,
      otherwise: `${name} is required`,
    },
  })

export const NewNotificationShape = Type.Object(
  {
    type: requiredText('type', 255, 'info'),
    title: requiredText('title', 255, 'Your export is ready'),
    message: requiredText('message', longestMessage, 'You can download it for seven days.'),
    data: Type.Optional(
      Anything({ exportId: 7 }, { description: `For the client of the user; ${largestData} characters of JSON.` }),
    ),
    userIds: Type.Array(Id(), {
      minItems: 1,
      maxItems: usersAtMost,
      refusal: {
        maxItems: `userIds must be at most ${usersAtMost}`,
        format: 'userIds must be ids of users',
        otherwise: 'userIds is required and must be a non-empty array',
      },
    }),
    tenant_Id: Type.Optional(
      Type.Union([Id(), Type.Null()], {
        description: "The sender's tenant unless given; null for none.",
        refusal: 'tenant_Id must be the id of a tenant',
      }),
    ),
  },
  { refusal: 'Request body must be an object' },
)

/** 400 for anything that is no notification, and for more than a thousand users. */
export function newNotificationOf(body: unknown): NewNotification {
  const { data = null, userIds, tenant_Id, ...texts } = readAs(NewNotificationShape, body)
  if (JSON.stringify(data).length > largestData)
    throw errors.badBody(`data must be at most ${largestData} characters of JSON`)
  return {
    type: texts.type,
    title: texts.title,
    message: texts.message,
    data,
    userIds: [...new Set(userIds.map((id) => id.toLowerCase()))],
    tenantId: tenant_Id?.toLowerCase() ?? tenant_Id,
  }
}

const badIds = 'notificationIds must be an array of ids'

const Ids = Type.Array(Id(), {
  maxItems: idsAtMost,
  refusal: { maxItems: `notificationIds must be at most ${idsAtMost}`, otherwise: badIds },
})

/** The notifications that a request is about: all of the caller's unless it names some. */
export const NamedShape = Type.Object(
  { notificationIds: Type.Optional(Ids) },
  { refusal: 'Request body must be an object' },
)

/** The same from a query string, as JSON, as comma list or as repeated key: clients differ. */
export function idsOfQuery(query: Readonly<Record<string, unknown>>): readonly string[] | undefined {
  const given = collectParameters(query, new Set(['notificationIds']), false)
  if (!given.has('notificationIds')) return undefined
  // Empty text is no way to ask for the deletion of everything.
  const notificationIds = readStrings('notificationIds', given.get('notificationIds')) ?? ''
  return readAs(NamedShape, { notificationIds }).notificationIds
}

export const CleanupShape = Type.Object(
  {
    days: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: longestDays,
        default: 30,
        examples: [90],
        refusal: `days must be a whole number from 1 to ${longestDays}`,
      }),
    ),
  },
  { refusal: 'Request body must be an object' },
)
