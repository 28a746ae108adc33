/* The public face of this folder. */

export { type Asset, fileNotFound, readableAsset, settingsAsset, storedAsset } from './asset.ts'
export type { AssetReads, AssetWrites } from './capabilities.ts'
export { type AssetContent, contentsOf, wholeOf } from './content.ts'
export { attachment } from './delivery.ts'
export type { AssetRow } from './queries.ts'
