/* The public face of this folder. */

export {
  type Asset,
  type AssetReads,
  type AssetRow,
  type AssetWrites,
  fileNotFound,
  readableAsset,
  settingsAsset,
  storedAsset,
} from './asset.ts'
export { type AssetContent, contentsOf, wholeOf } from './content.ts'
export { attachment } from './delivery.ts'
