import { onFirstUse } from '../language/once.ts'
import type { App } from './fastify.ts'

export type { MultipartFile } from '@fastify/multipart'

// Workers know the routes of files by their slice, and serve none.
const multipart = onFirstUse<typeof import('@fastify/multipart')>('@fastify/multipart')

/** Largest parts in bytes; a field's default is 1 MB. At most 10 fields unless it says otherwise. */
type PartLimits = { readonly fileSize: number; readonly fieldSize?: number; readonly fields?: number }

/** Lets the routes of this scope take multipart bodies of one file and a few fields. */
export function acceptMultipart(app: App, limits: PartLimits): void {
  if (app.hasContentTypeParser('multipart/form-data')) return
  const { fields = 10 } = limits
  app.register(multipart().default, { limits: { ...limits, files: 1, fields, parts: fields + 1 } })
}
