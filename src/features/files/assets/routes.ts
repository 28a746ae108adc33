import type { FastifyRequest } from 'fastify'
import { identified } from '../../../access/principal.ts'
import { Type } from '../../../adapters/typebox.ts'
import { AppError } from '../../../errors.ts'
import type { App } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Count, GeneralError, Id, Moment, OneOf, Text } from '../../../http/shapes.ts'
import { canonical, fits, type Transform } from '../images/images.ts'
import { answerAsset } from './answer.ts'
import {
  type Asset,
  type AssetReads,
  type AssetWrites,
  badSignature,
  isSettingsImage,
  readableAsset,
  settingsAsset,
  signerOf,
} from './asset.ts'
import { contentsOf } from './content.ts'
import {
  type AssetQuery,
  checkTransform,
  contentOf,
  isSigned,
  signAssets,
  type Wanted,
  wantedOf,
} from './signed-urls.ts'

/** The content of files, as browsers get it (docs/assets.md). */
export function assetRoutes(app: App, deps: AssetWrites): void {
  const contents = contentsOf(deps)
  app.route({
    method: ['GET', 'HEAD'],
    url: '/assets/:id',
    ...assetRoute,
    handler: async (request, reply) => {
      const { id } = request.params
      const wanted = wantedOf(request.query as AssetQuery, deps.config)
      const isNamedBySettings = isSettingsImage(id)
      // Nobody's signature is about these.
      checkTransform(isNamedBySettings ? { ...wanted, signature: undefined } : wanted, deps.config)
      const asset = isNamedBySettings
        ? await settingsAsset(deps, id, (request.query as AssetQuery).tenant_id)
        : await assetFor(deps, request, id, wanted)
      if (asset === undefined) return reply.code(404).type('text/plain; charset=utf-8').send('File not found')
      return answerAsset(deps, contents, { request, reply }, { asset, wanted, isNamedBySettings })
    },
  })
}

/** For callers that are somebody: what they sign is read in their name. */
export function assetBearerRoutes(app: App, deps: AssetReads): void {
  app.post('/files/:id/signed-url', signRoute, async (request) => {
    const [signed] = await signAssets(deps, identified(request.caller), [{ id: request.params.id, ...request.body }])
    return { data: signed! }
  })
  app.post('/files/signed-urls', signAllRoute, async (request) => {
    const { files, expiresIn } = request.body
    const wanted = files.map((file) => ({ expiresIn, ...(typeof file === 'string' ? { id: file } : file) }))
    return { data: await signAssets(deps, identified(request.caller), wanted) }
  })
}

/** In the caller's own name, or in that of who has signed the address. */
async function assetFor(deps: AssetReads, request: FastifyRequest, id: string, wanted: Wanted): Promise<Asset> {
  const { signature, transform, download } = wanted
  if (signature === undefined) return readableAsset(deps, request.caller, id)
  const { signer, expires, text } = signature
  if (!(expires * 1000 > deps.clock().getTime()))
    throw new AppError(403, 'This address has expired', { code: 'SIGNED_URL_EXPIRED' })
  const asset = await readableAsset(deps, await signerOf(deps, signer), id)
  const signed = {
    fileId: asset.id,
    content: contentOf(asset),
    transform: textOf(transform),
    download,
    signer,
    expires,
  }
  if (!isSigned(deps.config, signed, text)) throw badSignature()
  // A signed address opens the content for its holders, but no shared cache may keep it.
  return { ...asset, isForAll: false }
}

const textOf = (transform: Transform | undefined): string => (transform === undefined ? '' : canonical(transform))

const tag = 'Assets'
const said = (example: string, description: string) => Type.Optional(Text(example, { description }))
const pixels = (example: number) =>
  Type.Optional(Count(example, { minimum: 1, description: 'Pixels, at most ASSET_MAX_DIMENSION.' }))

/** Invalid values are ignored, as existing clients expect. */
const transforms = {
  width: pixels(800),
  height: pixels(600),
  fit: Type.Optional(OneOf(fits, { default: 'cover' })),
  quality: Type.Optional(Count(80, { minimum: 1, maximum: 100 })),
  format: Type.Optional(OneOf(['webp', 'avif', 'jpeg', 'png'])),
  withoutEnlargement: Type.Optional(Type.Boolean({ description: 'Leave smaller images as they are.' })),
  preset: said('thumb', 'A name of ASSET_PRESETS instead.'),
}

/** Types of ASSET_SECURE_PROXY_URLS are refused in words of their own. */
const Refused = Type.Union([GeneralError, Type.Object({ error: Text('Authentication required') })])

const assetRoute = route(
  {
    summary: 'Read the content of a file',
    description:
      'Or an image made of it: any of `width`, `height`, `quality` and `format` asks for one. Single ranges of bytes and conditions are understood.',
    tag,
    scope: 'read',
    params: Type.Object({
      id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'Of a file, or a name such as `project_icon`.' }),
    }),
    query: Type.Object({
      ...transforms,
      download: Type.Optional(Type.Boolean({ description: 'To be saved rather than shown.' })),
      access_token: said('eyJhbGciOiJIUzI1NiJ9…', 'For what cannot send headers.'),
      tenant_id: said('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', 'The tenant whose settings name the image.'),
      signer: said('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', 'Part of a signed address.'),
      expires: said('1773480413', 'Part of a signed address.'),
      signature: said('kJ1…', 'Part of a signed address.'),
    }),
    response: {
      200: Text('(bytes)', { contentMediaType: 'application/octet-stream' }),
      206: Text('(bytes)', { contentMediaType: 'application/octet-stream' }),
      302: Text('', { description: 'Sound and film of S3 are read there.' }),
      304: Text(''),
      401: Refused,
      403: Refused,
    },
    readElsewhere: 'all',
    sendsText: true,
  },
  { exposeHeadRoute: false, config: { takesTokenInQuery: true, limitedAs: 'assets' } },
)

const longestSeconds = 7 * 86_400
const ExpiresIn = Type.Integer({
  minimum: 1,
  maximum: longestSeconds,
  examples: [3600],
  description: 'Seconds, at most seven days.',
  refusal: `expiresIn must be a whole number of seconds from 1 to ${longestSeconds}`,
})
const TransformBody = Type.Optional(
  Type.Object(
    {
      width: Type.Optional(Count(800)),
      height: Type.Optional(Count(600)),
      fit: Type.Optional(Text('cover')),
      quality: Type.Optional(Count(80)),
      format: Type.Optional(Text('webp')),
      withoutEnlargement: Type.Optional(Type.Boolean({ examples: [true] })),
      preset: Type.Optional(Text('thumb')),
    },
    { refusal: 'transform must be an object of width, height, fit, quality, format, withoutEnlargement or preset' },
  ),
)
const download = Type.Optional(Type.Boolean({ examples: [false], description: 'To be saved rather than shown.' }))
const SignedShape = Type.Object({
  id: Id(),
  url: Text('/assets/0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44?expires=1773480413&signer=…&signature=…'),
  expiresAt: Moment(),
})

const signRoute = route({
  summary: 'Sign an address of a file',
  scope: 'write',
  description:
    'Everybody who has the address reads the file until it expires, as long as the signer may read it and the content stays the same.',
  tag,
  params: Type.Object({ id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44') }),
  body: Type.Object({ expiresIn: ExpiresIn, transform: TransformBody, download }),
  response: { 200: Type.Object({ data: SignedShape }) },
})
const signAllRoute = route({
  summary: 'Sign addresses of many files',
  scope: 'write',
  tag,
  body: Type.Object({
    expiresIn: ExpiresIn,
    files: Type.Array(Type.Union([Id(), Type.Object({ id: Id(), transform: TransformBody, download })]), {
      minItems: 1,
      maxItems: 1000,
      examples: [['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44']],
      refusal: 'files must be a list of up to 1000 ids, or of objects with id, transform and download',
    }),
  }),
  response: { 200: Type.Object({ data: Type.Array(SignedShape) }) },
})
