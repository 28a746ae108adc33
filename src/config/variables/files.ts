import { boolean, cron, integer, list, matching, milliseconds, oneOf, plainName, size, text } from '../parsers.ts'
import { group, optional, optionalSecret, variable } from '../variable.ts'

/* Where files are, how they come and what is made of them. */

const contentType = matching(/^[a-z]+(\/[a-z0-9][a-z0-9.+-]*)?$/i, 'content type or its first half')

/** `thumb=width:200;height:200` */
const preset = matching(
  /^[\w-]{1,64}=(width|height|fit|quality|format|withoutEnlargement):\w+(;(width|height|fit|quality|format|withoutEnlargement):\w+)*$/,
  'name, `=` and parameters such as width:200;format:webp',
)

export const storage = group('Storage', {
  servicesEnabled: variable(
    'STORAGE_SERVICES_ENABLED',
    list(plainName),
    '',
    'Names of the storage services; each name in upper case begins the names of its variables. When empty, outside production, there is one, `local`, under DAYBOOK_DATA_DIR',
  ),
  defaultService: optional(
    'STORAGE_DEFAULT_SERVICE',
    plainName,
    'Service of files that name none; the first one when unset',
  ),
  pathConfinement: variable(
    'STORAGE_PATH_CONFINEMENT',
    boolean,
    'true',
    'Confine local file operations to the storage’s root; null bytes are always refused',
  ),
  folderStructure: variable(
    'STORAGE_FOLDER_STRUCTURE',
    boolean,
    'false',
    'Lay files out by tenant and user; existing files stay where they are',
  ),
  quotaTenant: optional(
    'STORAGE_QUOTA_TENANT',
    size('mb'),
    'Most that the files of one tenant may take together; no limit when unset',
  ),
  tempPath: optional('STORAGE_TEMP_PATH', text, 'Directory of uploads in progress; the system’s when unset'),
})

export const files = group('Files', {
  maxUploadFileSize: variable('MAX_UPLOAD_FILE_SIZE', size('mb'), '50', 'Largest file, uploaded or fetched from a URL'),
  urlFetchTimeoutMs: variable(
    'URL_FETCH_TIMEOUT_MS',
    milliseconds(1),
    '15000',
    'Longest wait for the first answer to each request or redirect of an upload from a URL',
  ),
  tusExpiryHours: variable(
    'TUS_EXPIRY_HOURS',
    integer({ min: 1, max: 8760 }),
    '24',
    'How long a resumable upload may be continued',
  ),
  retentionDays: variable(
    'FILE_RETENTION_DAYS',
    integer({ min: 0, max: 3650 }),
    '0',
    'How long the content of deleted and replaced files is kept, so that a restored file gets it back',
  ),
  allowPrivateUrlFetch: variable(
    'SSRF_ALLOW_PRIVATE_URL_FETCH',
    boolean,
    'false',
    'Let URLs and SMTP servers that come over the API lead to private, loopback and metadata addresses',
  ),
  protectIsPublic: variable(
    'PROTECT_IS_PUBLIC_FIELD',
    boolean,
    'false',
    'isPublic of a file may be written only where a permission names it',
  ),
})

export const assets = group('Assets', {
  tempDir: variable('ASSET_TEMP_DIR', text, './asset-temp', 'Working directory of image transforms'),
  transforms: variable(
    'ASSET_TRANSFORMS',
    oneOf('all', 'signed', 'presets', 'off'),
    'all',
    'Image transforms that are made: all, those of signed addresses and presets, presets alone, or none',
  ),
  presets: variable(
    'ASSET_PRESETS',
    list(preset),
    '',
    'Transforms by name, for `?preset=name`: `thumb=width:200;height:200;format:webp`',
  ),
  maxDimension: variable(
    'ASSET_MAX_DIMENSION',
    integer({ min: 1, max: 65535, unit: 'px' }),
    '5000',
    'Widest and highest image transform; larger requests are clamped',
  ),
  maxInputPixels: variable(
    'ASSET_MAX_INPUT_PIXELS',
    integer({ min: 1, unit: 'px' }),
    '100000000',
    'Largest image that is decoded. A process that decodes may take 200 MB and 8 bytes for each of them',
  ),
  variantsPerFile: variable(
    'ASSET_VARIANTS_PER_FILE',
    integer({ min: 1, max: 10_000 }),
    '100',
    'Transforms of one image that are kept; the oldest goes first',
  ),
  cacheSeconds: variable(
    'ASSET_CACHE_SECONDS',
    integer({ min: 0, max: 31_536_000 }),
    '0',
    'How long browsers and proxies may show a public asset again without asking, also after it has changed or is private',
  ),
  rateLimit: variable(
    'ASSET_RATE_LIMIT',
    integer({ min: 1, max: 1_000_000_000 }),
    '1000',
    'Reads of assets, and of files of the console and of /docs, per RATE_LIMIT_INTERVAL; they do not count in RATE_LIMIT',
  ),
  signedUrlTtlSeconds: variable(
    'ASSET_SIGNED_URL_TTL',
    integer({ min: 1, max: 604_800 }),
    '300',
    'Seconds that an address of S3 lives to which a read of an asset is redirected',
  ),
  proxyEnabled: variable(
    'ASSET_PROXY_ENABLED',
    boolean,
    'false',
    'Stream S3 assets through the API instead of redirecting to a signed URL',
  ),
  secureProxyTypes: variable(
    'ASSET_SECURE_PROXY_URLS',
    list(contentType),
    '',
    'Content types (video, audio, image or full ones) that need, with ASSET_PROXY_ENABLED, a signed-in request with a custom header',
  ),
  xssProtection: variable(
    'ASSET_XSS_PROTECTION',
    boolean,
    'true',
    'Executable types are downloaded as application/octet-stream; otherwise under their own names, and plain XML is shown, without scripts',
  ),
  nosniff: variable('ASSET_NOSNIFF', boolean, 'true', 'Send X-Content-Type-Options: nosniff'),
  sharedAccessMode: variable(
    'SHARED_ASSET_ACCESS_MODE',
    oneOf('off', 'public', 'authenticated'),
    'off',
    'Callers that may read the files of the shared tenants',
  ),
  sharedTenantIds: variable('SHARED_ASSET_TENANT_IDS', list(text), '', 'Ids of the tenants whose files are shared'),
})

/* Backups: docs/backup.md. */

export const backup = group('Backups', {
  schedule: optional(
    'BACKUP_SCHEDULE',
    cron,
    'When the worker log-cleanup makes a backup, as a cron expression in UTC, e.g. `0 2 * * *`; without it none is made by itself',
  ),
  storage: optional(
    'BACKUP_STORAGE',
    plainName,
    'Storage service of STORAGE_SERVICES_ENABLED that these backups are kept in, under `backups/`',
  ),
  keep: variable(
    'BACKUP_KEEP',
    integer({ min: 1, max: 10_000 }),
    '14',
    'How many of them are kept; the oldest goes first',
  ),
  maxAgeHours: variable(
    'BACKUP_MAX_AGE_HOURS',
    integer({ min: 1, max: 87_600, unit: 'hours' }),
    '36',
    'Age of the newest one at which the doctor and a mail to administrators say so',
  ),
  beforeUpgrade: variable(
    'BACKUP_BEFORE_UPGRADE',
    boolean,
    'false',
    'Setup makes a backup in BACKUP_STORAGE before it migrates a database of an earlier version',
  ),
  passphrase: optionalSecret(
    'BACKUP_PASSPHRASE',
    text,
    'With it the keys of the installation are in its backups, encrypted, and open with nothing else; without it they are not',
  ),
})
