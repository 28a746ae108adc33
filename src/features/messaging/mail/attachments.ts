import type { MailAttachment } from '../../../adapters/mailer.ts'
import type { Config } from '../../../config/config.ts'
import { sql, type Tx } from '../../../db/sql.ts'
import { errors } from '../../../errors.ts'
import { isUuid } from '../../../language/text.ts'
import { type AssetWrites, contentsOf, storedAsset, wholeOf } from '../../files/assets/assets.ts'
import { oneLine } from '../templates/templates.ts'

/** A file that goes with a mail: its id, and under which name where that is not its own. */
export type Attachment = { readonly file: string; readonly filename?: string }

const mostFiles = 10
/** Of all together: many servers refuse mails of 25 MB, and a mail takes a third more than its files. */
const mostBytes = 15 * 1_048_576

/** An attachment that can never be sent, however often it is tried. */
export class AttachmentError extends Error {
  override readonly name = 'AttachmentError'
}

/** Files as they are asked for: an id, or `{ file, filename }`. 400 for anything else. */
export function readAttachments(given: unknown): readonly Attachment[] {
  if (given === undefined || given === null) return []
  const list = Array.isArray(given) ? given : [given]
  if (list.length > mostFiles) throw errors.badBody(`attachments must be at most ${mostFiles} files`)
  return list.map((one) => {
    const { file, filename } = typeof one === 'string' ? { file: one, filename: undefined } : (one ?? {})
    if (!isUuid(file) || (filename !== undefined && typeof filename !== 'string'))
      throw errors.badBody('attachments must be ids of files, or objects { file, filename }')
    return { file: file.toLowerCase(), ...(filename !== undefined && { filename: oneLine(filename) }) }
  })
}

type Attached = { readonly id: string; readonly size: number; readonly tenantId: string | null; isPublic: boolean }

/** 400 for files that a mail could not be sent with, in the transaction that accepts the mail. */
export async function checkAttachments(
  tx: Tx,
  config: Config,
  attachments: readonly Attachment[],
  tenantId: string | undefined,
): Promise<void> {
  if (attachments.length === 0) return
  const ids = attachments.map(({ file }) => file)
  const files = await tx.any<Attached>(sql`
    select id, size::float8 as size, "tenant_Id" as "tenantId", "isPublic" is true as "isPublic"
    from "svc_File" where id = any(${sql.array(ids, 'uuid')})`)
  const problem = problemOf(
    ids.map((id) => files.find((file) => file.id === id)),
    config.tenancy.enabled ? (tenantId ?? null) : undefined,
  )
  if (problem !== undefined) throw errors.badBody(`attachments: ${problem}`)
}

/**
 * The files of a mail as they are now.
 *
 * @throws {AttachmentError} for one that is gone, or may not go with this mail any more
 */
export async function attachmentsOf(
  deps: AssetWrites,
  attachments: readonly Attachment[],
  tenantId: string | null,
): Promise<readonly MailAttachment[]> {
  const files = await Promise.all(attachments.map(({ file }) => storedAsset(deps, file)))
  const problem = problemOf(files, deps.config.tenancy.enabled ? tenantId : undefined)
  if (problem !== undefined) throw new AttachmentError(problem)
  const found: MailAttachment[] = []
  for (const [n, file] of files.entries()) {
    const content = await wholeOf(contentsOf(deps).original(file!))
    if (content === undefined) throw new AttachmentError('the content of a file is gone')
    found.push({ filename: attachments[n]!.filename ?? file!.name, contentType: file!.type, content })
  }
  return found
}

/** Why a mail of the tenant cannot have the files; `undefined` as tenant: there are none. Pure. */
function problemOf(files: readonly (Attached | undefined)[], tenant: string | null | undefined): string | undefined {
  const there = files.filter((file) => file !== undefined)
  if (there.length < files.length) return 'there is no such file'
  // A mail of the installation, which has no tenant, may attach any file.
  const isForeign = ({ tenantId, isPublic }: Attached) => !isPublic && tenantId !== null && tenantId !== tenant
  if (tenant !== undefined && tenant !== null && there.some(isForeign)) return 'a file belongs to another tenant'
  const size = there.reduce((sum, file) => sum + file.size, 0)
  return size > mostBytes ? `more than ${mostBytes / 1_048_576} MB` : undefined
}
