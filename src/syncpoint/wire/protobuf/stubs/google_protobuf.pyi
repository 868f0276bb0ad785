from google.protobuf.descriptor_pb2 import *
from google.protobuf.field_mask_pb2 import *
from google.protobuf.duration_pb2 import *
from google.protobuf.empty_pb2 import *
from google.protobuf.struct_pb2 import *
from google.protobuf.timestamp_pb2 import *
from google.protobuf.any_pb2 import *
